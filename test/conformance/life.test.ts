import { life } from '../../src/testing/conformance/facts/life.js';
import { eachStoreProves } from '../support/stores.js';

eachStoreProves(life);
