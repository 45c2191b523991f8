import { hostile } from '../../src/testing/conformance/facts/hostile.js';
import { eachStoreProves } from '../support/stores.js';

eachStoreProves(hostile);
