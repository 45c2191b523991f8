import { addHandlers } from './lib/handlers.js';
import { mill } from './lib/mill.js';

addHandlers(mill);
await mill.start();

process.once('SIGTERM', () => void mill.stop());
process.once('SIGINT', () => void mill.stop());
