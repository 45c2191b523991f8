import { keyedExisting } from '../../src/testing/conformance/facts/keyed-existing.js';
import { keys } from '../../src/testing/conformance/facts/keys.js';
import { permits } from '../../src/testing/conformance/facts/limits.js';
import { rates } from '../../src/testing/conformance/facts/rates.js';
import { eachStoreProves } from '../support/stores.js';

for (const chapter of [permits, rates, keys, keyedExisting]) eachStoreProves(chapter);
