import { settle } from '../../src/testing/conformance/facts/settle.js';
import { eachStoreProves } from '../support/stores.js';

eachStoreProves(settle);
