import { addHandlers } from './handlers.js';
import { mill } from './mill.js';

addHandlers(mill);
await mill.start();

process.once('SIGTERM', () => void mill.stop());
process.once('SIGINT', () => void mill.stop());
