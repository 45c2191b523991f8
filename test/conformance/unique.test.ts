import { unique } from '../../src/testing/conformance/facts/unique.js';
import { eachStoreProves } from '../support/stores.js';

eachStoreProves(unique);
