import { chaosSeeds } from './support/chaos-seeds.js'

chaosSeeds(1, 5, { isFirst: true })
