import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { WorkerModule } from './emails.worker.js';

async function bootstrap(): Promise<void> {
  const app = await NestFactory.createApplicationContext(WorkerModule);
  app.enableShutdownHooks(['SIGTERM', 'SIGINT']);
}

void bootstrap();
