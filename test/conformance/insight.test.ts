import { insight } from '../../src/testing/conformance/facts/insight.js';
import { eachStoreProves } from '../support/stores.js';

eachStoreProves(insight);
