/** A W3C Trace Context. It is stored with work, to connect its run to the enqueue or the planning it comes from. */
export interface TraceContext {
  readonly traceparent: string;
  readonly tracestate?: string;
  /** The work was enqueued together with others in one call. Each run starts its own trace and links to that call. */
  readonly batch?: true;
}

/** Describes a run to the tracer. */
export interface TracedRun {
  readonly kind: 'job' | 'task' | 'document';
  readonly name: string;
  readonly id: string;
  readonly attempt: number;
  readonly trace?: TraceContext;
}

/** How a run ended. */
export interface TracedEnd {
  readonly outcome: string;
  readonly error?: Error;
}

/** Creates spans. Each method calls `work` once and returns its result or throws its error. */
export interface Tracer {
  /** Around an enqueue. `work` gets the context to store with the jobs. */
  enqueue<T>(names: readonly string[], work: (trace: TraceContext | undefined) => Promise<T>): Promise<T>;
  /** Around an attempt. The context stored with the work becomes the parent of the span, or is linked to it. */
  run<T>(about: TracedRun, work: () => Promise<T>, endOf: (answer: T) => TracedEnd): Promise<T>;
  /** Around the planning of a batch of changes. `work` gets the context to store with the planned tasks. */
  plan<T>(changes: number, work: (trace: TraceContext | undefined) => Promise<T>): Promise<T>;
}
