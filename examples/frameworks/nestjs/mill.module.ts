import {
  Inject,
  Module,
  type BeforeApplicationShutdown,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
} from '@nestjs/common';
import { Tidemill } from 'tidemill';
import type { Dashboard } from 'tidemill/dashboard';
import { DASHBOARD, makeDashboard } from './dashboard.js';

/** One mill per application. Inject it as `Tidemill`. */
@Module({
  providers: [
    {
      provide: Tidemill,
      useFactory: () =>
        new Tidemill({
          store: process.env.DATABASE_URL ?? 'file:./data',
          // Kubernetes waits 30 s between SIGTERM and SIGKILL. HTTP may take some of them.
          shutdownTimeout: '15s',
        }),
    },
    { provide: DASHBOARD, useFactory: makeDashboard, inject: [Tidemill] },
  ],
  exports: [Tidemill, DASHBOARD],
})
export class MillModule implements OnApplicationBootstrap, BeforeApplicationShutdown, OnApplicationShutdown {
  constructor(
    @Inject(Tidemill) private readonly mill: Tidemill,
    @Inject(DASHBOARD) private readonly dashboard: Dashboard,
  ) {}

  /** A module with handlers has added them in `onModuleInit`. A process without handlers only enqueues. */
  async onApplicationBootstrap(): Promise<void> {
    if (this.mill.names.length > 0) await this.mill.start();
  }

  /** Live pages would keep their connections open for minutes, and Nest waits for connections. */
  beforeApplicationShutdown(): void {
    this.dashboard.close();
  }

  /** Nest has closed the HTTP server by now. In `onModuleDestroy` it would still take requests. */
  async onApplicationShutdown(): Promise<void> {
    await this.mill.stop();
  }
}
