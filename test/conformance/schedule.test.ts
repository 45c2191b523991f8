import { schedules } from '../../src/testing/conformance/facts/schedule.js';
import { eachStoreProves } from '../support/stores.js';

eachStoreProves(schedules);
