import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { toNodeHandler, type Dashboard } from 'tidemill/dashboard';
import { DASHBOARD } from './dashboard.js';
import { EmailsController } from './emails.controller.js';
import { WorkerModule } from './emails.worker.js';
import { MillModule } from './mill.module.js';

// The worker in this process. With WORKER=apart, worker.ts runs the jobs instead.
const workers = process.env.WORKER === 'apart' ? [] : [WorkerModule];

@Module({ imports: [MillModule, ...workers], controllers: [EmailsController] })
class AppModule {}

async function bootstrap(): Promise<void> {
  const app = await NestFactory.create(AppModule);

  // The dashboard checks each request itself, in `authorize`.
  app.use('/tidemill', toNodeHandler(app.get<Dashboard>(DASHBOARD)));

  // At SIGTERM and SIGINT: beforeApplicationShutdown, the HTTP server, onApplicationShutdown.
  app.enableShutdownHooks(['SIGTERM', 'SIGINT']);

  await app.listen(process.env.PORT ?? 3000);
  console.log(`http://localhost:${new URL(await app.getUrl()).port}`);
}

void bootstrap();
