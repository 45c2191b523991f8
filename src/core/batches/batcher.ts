interface Waiting<Question, Answer> {
  readonly question: Question;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

export interface BatcherOptions<Question, Answer> {
  /** Returns one answer per question, in order. */
  readonly ask: (questions: readonly Question[]) => Promise<readonly Answer[]>;
  /** True if a single question may have caused the error; each question is then asked again on its own. */
  readonly isOwn: (error: unknown) => boolean;
}

/**
 * Combines questions of one kind into one query. A query takes all questions of the same turn of the event loop;
 * questions that arrive while it runs go into the next one.
 */
export class Batcher<Question, Answer> {
  readonly #options: BatcherOptions<Question, Answer>;
  /** By kind: the questions for the next query. The entry exists as long as a query of that kind runs. */
  readonly #waiting = new Map<string, Waiting<Question, Answer>[]>();

  constructor(options: BatcherOptions<Question, Answer>) {
    this.#options = options;
  }

  ask(kind: string, question: Question): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const one = { question, resolve, reject };
      const waiting = this.#waiting.get(kind);
      if (waiting !== undefined) waiting.push(one);
      else {
        this.#waiting.set(kind, [one]);
        void this.#serveAll(kind);
      }
    });
  }

  async #serveAll(kind: string): Promise<void> {
    for (;;) {
      await new Promise((resolve) => setImmediate(resolve));
      const waiting = this.#waiting.get(kind) ?? [];
      if (waiting.length === 0) break;
      this.#waiting.set(kind, []);
      await this.#serve(waiting);
    }
    this.#waiting.delete(kind);
  }

  async #serve(waiting: readonly Waiting<Question, Answer>[]): Promise<void> {
    const { ask, isOwn } = this.#options;
    try {
      const answers = await ask(waiting.map(({ question }) => question));
      for (const [index, { resolve }] of waiting.entries()) resolve(answers[index] as Answer);
    } catch (error) {
      if (waiting.length > 1 && isOwn(error)) await Promise.all(waiting.map((one) => this.#serve([one])));
      else for (const { reject } of waiting) reject(error);
    }
  }
}
