import { setTimeout } from 'node:timers/promises';
import { Inject, Injectable, Module, type OnModuleInit } from '@nestjs/common';
import { Tidemill, type JobContext } from 'tidemill';
import { sendEmail, type Email } from './jobs.js';
import { MillModule } from './mill.module.js';

/** The handlers, as methods of a provider: inject here what they need. */
@Injectable()
export class EmailsWorker implements OnModuleInit {
  constructor(@Inject(Tidemill) private readonly mill: Tidemill) {}

  onModuleInit(): void {
    this.mill.work(sendEmail, { concurrency: 10 }, (job) => this.send(job));
  }

  private async send({ data, signal }: JobContext<Email>): Promise<string> {
    // Replace this line with a call to your mail provider, and pass the signal on.
    await setTimeout(1_000, undefined, { signal });
    return `sent "${data.subject}" to ${data.to}`;
  }
}

/** Imported by each application that works. */
@Module({ imports: [MillModule], providers: [EmailsWorker] })
export class WorkerModule {}
