import { chaosSeeds } from './support/chaos-seeds.js'

chaosSeeds(6, 10)
