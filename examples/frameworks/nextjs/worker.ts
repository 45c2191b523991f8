import { addHandlers } from '@/lib/handlers';
import { mill } from '@/lib/mill';

addHandlers(mill);
await mill.start();

process.once('SIGTERM', () => void mill.stop());
process.once('SIGINT', () => void mill.stop());
