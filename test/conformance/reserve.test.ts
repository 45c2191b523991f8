import { reserved } from '../../src/testing/conformance/facts/reserve.js';
import { eachStoreProves } from '../support/stores.js';

eachStoreProves(reserved);
