import { chaosSeeds } from './support/chaos-seeds.js'

chaosSeeds(16, 20)
