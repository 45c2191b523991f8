import { running } from '../../src/testing/conformance/facts/run.js';
import { eachStoreProves } from '../support/stores.js';

eachStoreProves(running);
