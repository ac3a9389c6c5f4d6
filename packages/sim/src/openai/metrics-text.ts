import { type EngineMetrics, firstTokenBuckets } from '../engine/engine-metrics.js'

export interface MetricsSnapshot {
  readonly model: string
  readonly runningRequests: number
  readonly waitingRequests: number
  readonly kvUsageRatio: number
  readonly blocks: number
  readonly blockSizeTokens: number
  readonly metrics: EngineMetrics
}

export const metricsContentType = 'text/plain; version=0.0.4; charset=utf-8'

/** The series of a vLLM engine, under its names, in Prometheus' text format. */
export function metricsText(snapshot: MetricsSnapshot): string {
  const { metrics } = snapshot
  const labels = `model_name="${escapeLabel(snapshot.model)}",engine="0"`
  const series = (type: string, name: string, help: string, lines: readonly string[]) =>
    `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('\n')}\n`
  const single = (type: 'gauge' | 'counter', name: string, help: string, value: number) =>
    series(type, name, help, [`${name}{${labels}} ${value}`])
  return [
    single('gauge', 'vllm:num_requests_running', 'Requests in execution.', snapshot.runningRequests),
    single('gauge', 'vllm:num_requests_waiting', 'Requests that wait to start.', snapshot.waitingRequests),
    single('gauge', 'vllm:kv_cache_usage_perc', 'Share of KV blocks in use, 0 to 1.', snapshot.kvUsageRatio),
    single(
      'counter',
      'vllm:prefix_cache_queries_total',
      'Prompt tokens looked up in the cache.',
      metrics.prefixQueries,
    ),
    single(
      'counter',
      'vllm:prefix_cache_hits_total',
      'Prompt tokens found in the cache.',
      metrics.prefixHits,
    ),
    single(
      'counter',
      'vllm:num_preemptions_total',
      'Requests preempted for want of KV blocks.',
      metrics.preemptions,
    ),
    single('counter', 'vllm:prompt_tokens_total', 'Prompt tokens taken in.', metrics.promptTokens),
    single('counter', 'vllm:generation_tokens_total', 'Tokens generated.', metrics.generationTokens),
    series(
      'counter',
      'vllm:request_success_total',
      'Requests that ended, by reason.',
      Object.entries(metrics.ended).map(
        ([reason, count]) => `vllm:request_success_total{${labels},finished_reason="${reason}"} ${count}`,
      ),
    ),
    firstTokenHistogram(labels, metrics, series),
    series('gauge', 'vllm:cache_config_info', 'Facts of the KV cache.', [
      `vllm:cache_config_info{block_size="${snapshot.blockSizeTokens}",num_gpu_blocks="${snapshot.blocks}",enable_prefix_caching="True",engine="0"} 1`,
    ]),
  ].join('')
}

function firstTokenHistogram(
  labels: string,
  metrics: EngineMetrics,
  series: (type: string, name: string, help: string, lines: readonly string[]) => string,
): string {
  const name = 'vllm:time_to_first_token_seconds'
  let count = 0
  const lines = metrics.firstTokenCounts.map((inBucket, index) => {
    count += inBucket
    return `${name}_bucket{${labels},le="${firstTokenBuckets[index] ?? '+Inf'}"} ${count}`
  })
  lines.push(`${name}_sum{${labels}} ${metrics.firstTokenSumSeconds}`, `${name}_count{${labels}} ${count}`)
  return series('histogram', name, 'Time from arrival to the first token, seconds.', lines)
}

function escapeLabel(value: string): string {
  return value.replace(/\\/g, '\\\\').replace(/"/g, '\\"').replace(/\n/g, '\\n')
}
