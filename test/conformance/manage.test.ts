import { managing } from '../../src/testing/conformance/facts/manage.js';
import { eachStoreProves } from '../support/stores.js';

eachStoreProves(managing);
