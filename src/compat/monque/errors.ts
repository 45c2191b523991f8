/** The errors of Monque, with its names and fields. */
export class MonqueError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

export class InvalidCronError extends MonqueError {
  readonly expression: string;
  constructor(expression: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.expression = expression;
  }
}

/** Not initialized, or the store cannot be opened: see `cause`. */
export class ConnectionError extends MonqueError {}

/** Emitted with `job:error`, never thrown: `stop()` timed out while these jobs ran. They are handed back. */
export class ShutdownTimeoutError<Job = unknown> extends MonqueError {
  readonly incompleteJobs: readonly Job[];
  constructor(message: string, incompleteJobs: readonly Job[]) {
    super(message);
    this.incompleteJobs = incompleteJobs;
  }
}

export class WorkerRegistrationError extends MonqueError {
  readonly jobName: string;
  constructor(message: string, jobName: string, options?: ErrorOptions) {
    super(message, options);
    this.jobName = jobName;
  }
}

export class JobStateError extends MonqueError {
  readonly jobId: string;
  readonly currentStatus: string;
  readonly attemptedAction: string;
  constructor(message: string, jobId: string, currentStatus: string, attemptedAction: string) {
    super(message);
    this.jobId = jobId;
    this.currentStatus = currentStatus;
    this.attemptedAction = attemptedAction;
  }
}

export class InvalidCursorError extends MonqueError {}

export class InvalidJobIdentifierError extends MonqueError {
  readonly field: string;
  readonly value: unknown;
  constructor(field: string, value: unknown, message: string) {
    super(message);
    this.field = field;
    this.value = value;
  }
}

export class AggregationTimeoutError extends MonqueError {}

export class PayloadTooLargeError extends MonqueError {
  /** Bytes; -1 if the payload cannot be measured. */
  readonly actualSize: number;
  readonly maxSize: number;
  constructor(message: string, actualSize: number, maxSize: number, options?: ErrorOptions) {
    super(message, options);
    this.actualSize = actualSize;
    this.maxSize = maxSize;
  }
}
