#!/usr/bin/env node
import { run } from './commands/program.js'

// No top-level await: the package can then also be loaded with require().
void run(process.argv)
