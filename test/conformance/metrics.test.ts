import { measures } from '../../src/testing/conformance/facts/metrics.js';
import { eachStoreProves } from '../support/stores.js';

eachStoreProves(measures);
