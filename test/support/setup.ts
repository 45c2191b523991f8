import { afterAll, afterEach } from 'vitest';
import { cleanUpFile, cleanUpTest } from './cleanup.js';

// Runs anew for each file, unlike the modules that files import.
afterEach(cleanUpTest);
afterAll(cleanUpFile);
