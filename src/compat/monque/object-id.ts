/** The ids of Monque's jobs are instances of this class. Nothing else here needs the driver at run time. */
export { ObjectId } from 'mongodb';
