import { chaosSeeds } from './support/chaos-seeds.js'

chaosSeeds(11, 15)
