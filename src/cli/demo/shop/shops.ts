import type { Store, Tidemill } from '../../../index.js';
import type { Shop } from './shop.js';
import { MongoShop } from './shop-mongodb.js';
import { SqlShop } from './shop-sql.js';

export const shopOf = (mill: Tidemill, store: Store, space: string): Shop =>
  store.kind === 'mongodb' ? new MongoShop(mill, space) : new SqlShop(mill, space);
