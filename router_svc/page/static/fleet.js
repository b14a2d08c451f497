// What /metrics says of all engines over the last minutes.
//
//   router:  octavo_router_engine_*{target}                 who is there, and may be sent requests
//   join:    octavo_router_engine_info{target, engine}      which process is at a target
//   engines: vllm:*{engine}                                 what it does

/** How far back the plots go, in seconds. */
export const SPAN = 180;
const RATE_SECONDS = 5;
const RECENT_SECONDS = 60;
const GONE_SECONDS = 60; // an engine that is no longer listed is shown for so long

const ROUTER = "octavo_router_engine_";
const BUCKETS = "vllm:time_to_first_token_seconds_bucket";
const GAUGES = {
  running: "vllm:num_requests_running",
  waiting: "vllm:num_requests_waiting",
  kv: "vllm:kv_cache_usage_perc",
};
const COUNTERS = {
  generated: "vllm:generation_tokens_total",
  prompt: "vllm:prompt_tokens_total",
  hits: "vllm:prefix_cache_hits_total",
  queries: "vllm:prefix_cache_queries_total",
  preemptions: "vllm:num_preemptions_total",
};
const EVENTS = { retries: "octavo_router_retries_total", failovers: "octavo_router_failovers_total" };

/** The samples that are read. */
export const WANTED = [
  ...Object.values(GAUGES),
  ...Object.values(COUNTERS),
  ...Object.values(EVENTS),
  BUCKETS,
  "vllm:cache_config_info",
  ...["ready", "requests_in_flight", "circuit", "info"].map((name) => ROUTER + name),
];

const sum = (values) => values.reduce((total, value) => total + value, 0);

/** Counters of one engine's process over time. */
class Counts {
  constructor() {
    this._points = []; // {t, counters, buckets: Map of bound to count}
  }

  add(t, counters, buckets) {
    this._points.push({ t, counters, buckets });
    while (this._points[0].t < t - SPAN - RATE_SECONDS) this._points.shift();
  }

  get last() {
    return this._points.at(-1);
  }

  _before(seconds) {
    const from = this.last.t - seconds;
    return this._points.findLast((point) => point.t <= from) ?? this._points[0];
  }

  increase(name, seconds) {
    return Math.max(0, this.last.counters[name] - this._before(seconds).counters[name]);
  }

  rate(name) {
    const passed = this.last.t - this._before(RATE_SECONDS).t;
    return passed > 0 ? this.increase(name, RATE_SECONDS) / passed : NaN;
  }

  /** How many first tokens came within each bound, cumulated. */
  firstTokens(seconds) {
    const before = this._before(seconds).buckets;
    return new Map([...this.last.buckets].map(([bound, count]) => [bound, count - (before.get(bound) ?? 0)]));
  }
}

/** The value below which the share `q` lies, linear within a bucket, as Prometheus has it; NaN of nothing. */
export function quantile(q, buckets) {
  const bounds = [...buckets].sort(([one], [other]) => one - other);
  const rank = q * (bounds.at(-1)?.[1] ?? 0);
  if (!(rank > 0)) return NaN;
  let below = 0;
  let start = 0;
  for (const [bound, count] of bounds) {
    if (count >= rank)
      return bound === Infinity ? start : start + ((bound - start) * (rank - below)) / (count - below);
    below = count;
    start = bound;
  }
  return NaN;
}

/** Takes one scrape after the other. Times are in seconds. */
export class Fleet {
  constructor() {
    this._counts = new Map(); // by engine id
    this._engines = new Map(); // by target: {target, id, model, state, since, seen, history}
    this.history = [];
  }

  /** All engines together, and each: {total, engines}. */
  update(samples, t) {
    const found = this._readEngines(samples, t);
    this._readRouter(samples, t);
    const engines = [...this._engines.values()].sort((one, other) =>
      one.target.localeCompare(other.target, "en", { numeric: true }),
    );
    for (const engine of engines) {
      engine.values = measured(found.filter((each) => each.id === engine.id));
      push(engine.history, t, engine.values);
      this._judge(engine, t);
    }
    const total = measured(found);
    for (const [name, metric] of Object.entries(EVENTS))
      total[name] = sum(samples.get(metric).map(({ value }) => value));
    push(this.history, t, total);
    return {
      total,
      engines: engines.filter(
        (engine) => t - engine.seen <= GONE_SECONDS || !this._engines.delete(engine.target),
      ),
    };
  }

  _readEngines(samples, t) {
    const byId = new Map();
    const of = (id) =>
      byId.get(id) ?? byId.set(id, { id, gauges: {}, counters: {}, buckets: new Map(), blocks: 1 }).get(id);
    const read = (names, into) => {
      for (const [name, metric] of Object.entries(names)) {
        for (const { labels, value } of samples.get(metric)) of(labels.engine)[into][name] = value;
      }
    };
    read(GAUGES, "gauges");
    read(COUNTERS, "counters");
    for (const { labels, value } of samples.get(BUCKETS)) {
      of(labels.engine).buckets.set(labels.le === "+Inf" ? Infinity : Number(labels.le), value);
    }
    for (const { labels } of samples.get("vllm:cache_config_info"))
      of(labels.engine).blocks = Number(labels.num_gpu_blocks);
    for (const [id, each] of byId) {
      if (!this._counts.has(id)) this._counts.set(id, new Counts());
      each.counts = this._counts.get(id);
      each.counts.add(t, each.counters, each.buckets);
    }
    for (const id of this._counts.keys()) if (!byId.has(id)) this._counts.delete(id);
    return [...byId.values()];
  }

  _readRouter(samples, t) {
    const of = (target) => {
      if (!this._engines.has(target)) {
        this._engines.set(target, {
          target,
          id: "",
          model: "",
          state: "",
          since: t,
          history: [],
          circuits: {},
        });
      }
      return this._engines.get(target);
    };
    for (const { labels, value } of samples.get(`${ROUTER}ready`))
      Object.assign(of(labels.target), { ready: value, seen: t });
    for (const { labels, value } of samples.get(`${ROUTER}requests_in_flight`))
      of(labels.target).inFlight = value;
    for (const { labels, value } of samples.get(`${ROUTER}circuit`))
      of(labels.target).circuits[labels.state] = value;
    for (const { labels } of samples.get(`${ROUTER}info`)) {
      Object.assign(of(labels.target), { id: labels.engine, model: labels.model_name });
    }
  }

  _judge(engine, t) {
    const routers = sum(Object.values(engine.circuits));
    let state;
    if (engine.seen < t) state = ["down", "Gone"];
    else if (!engine.ready)
      state = Number.isFinite(engine.values.running) ? ["warn", "Not ready"] : ["down", "Not reachable"];
    else if (engine.circuits.open) state = ["warn", "Circuit open"];
    else if (engine.circuits.half_open) state = ["warn", "On trial"];
    else if (engine.ready < routers) state = ["warn", `Ready for ${engine.ready} of ${routers} routers`];
    else state = ["ok", "Ready"];
    if (engine.label !== state[1]) engine.since = t;
    [engine.state, engine.label] = state;
  }
}

function push(history, t, values) {
  history.push({ t, ...values });
  while (history[0].t < t - SPAN) history.shift();
}

/** The values of some engines together; NaN where there is nothing to know. */
function measured(engines) {
  if (!engines.length)
    return { running: NaN, waiting: NaN, kv: NaN, generated: NaN, prompt: NaN, preemptions: NaN };
  const counts = engines.map((engine) => engine.counts);
  const gauge = (name) => sum(engines.map((engine) => engine.gauges[name] ?? 0));
  const increase = (name, seconds) => sum(counts.map((each) => each.increase(name, seconds) || 0));
  const rate = (name) => sum(counts.map((each) => each.rate(name)).filter(Number.isFinite));
  const blocks = sum(engines.map((engine) => engine.blocks));
  const tokens = new Map();
  for (const each of counts) {
    for (const [bound, count] of each.firstTokens(RECENT_SECONDS))
      tokens.set(bound, (tokens.get(bound) ?? 0) + count);
  }
  const queries = increase("queries", RECENT_SECONDS);
  return {
    running: gauge("running"),
    waiting: gauge("waiting"),
    kv: sum(engines.map((engine) => (engine.gauges.kv ?? 0) * engine.blocks)) / blocks,
    generated: rate("generated"),
    prompt: rate("prompt"),
    firstToken: quantile(0.5, tokens),
    firstTokenSlow: quantile(0.95, tokens),
    hits: queries ? increase("hits", RECENT_SECONDS) / queries : NaN,
    preemptions: sum(counts.map((each) => each.last.counters.preemptions ?? 0)),
    preempted: increase("preemptions", RATE_SECONDS),
    recentPreemptions: increase("preemptions", SPAN),
  };
}
