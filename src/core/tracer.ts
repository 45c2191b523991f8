/** Where something stands in a trace, by W3C Trace Context, as it is kept with work. */
export interface TraceContext {
  readonly traceparent: string;
  readonly tracestate?: string;
  /** It was one of many that were asked for in one call: a run points at the call, and begins a trace of its own. */
  readonly batch?: true;
}

/** What a run is about. */
export interface TracedRun {
  readonly kind: 'job' | 'task' | 'document';
  readonly name: string;
  readonly id: string;
  readonly attempt: number;
  readonly trace?: TraceContext;
}

/** What became of a run. */
export interface TracedEnd {
  readonly outcome: string;
  readonly error?: Error;
}

/** Spans around what the library does. Each calls `work` once, and answers or throws what that does. */
export interface Tracer {
  /** Jobs are asked for; `work` gets what is to be kept with them. */
  enqueue<T>(names: readonly string[], work: (trace: TraceContext | undefined) => Promise<T>): Promise<T>;
  /** An attempt runs. What is kept with its work is the parent of its span, or is linked to it. */
  run<T>(about: TracedRun, work: () => Promise<T>, endOf: (answer: T) => TracedEnd): Promise<T>;
  /** A batch of changes is planned; `work` gets what is to be kept with the tasks that come of it. */
  plan<T>(changes: number, work: (trace: TraceContext | undefined) => Promise<T>): Promise<T>;
}
