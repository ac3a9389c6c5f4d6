import { writeFileSync } from 'node:fs'

/** A vitest reporter that writes how many tests passed, failed and were skipped, and prints why a test was skipped. */
export default class CountReporter {
  onTestRunEnd(modules, errors) {
    const counts = { passed: 0, failed: errors.length, skipped: 0 }
    for (const module of modules) {
      if (module.errors().length > 0) counts.failed++
      for (const test of module.children.allTests()) {
        const result = test.result()
        counts[result.state === 'pending' ? 'skipped' : result.state]++
        if (result.state === 'skipped') {
          console.log(
            `skipped: ${test.fullName}: ${result.note ?? 'no reason given, which is a fault of the test'}`,
          )
        }
      }
    }
    writeFileSync(process.env.INFERA_TEST_COUNTS ?? '.run/test-counts.json', JSON.stringify(counts))
  }
}
