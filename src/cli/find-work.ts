import type { FoundDocument, FoundTask, Job } from '../index.js';
import { idText } from '../mill/tools.js';
import type { Session } from './context.js';

export type Work =
  | { readonly kind: 'job'; readonly job: Job }
  | { readonly kind: 'task'; readonly task: FoundTask }
  | { readonly kind: 'document'; readonly document: FoundDocument };

/** An id on the command line has no type: in MongoDB it may be any of these. */
const readings = (id: string): readonly unknown[] => [
  id,
  ...(/^[0-9a-f]{24}$/iu.test(id) ? [{ $oid: id }] : []),
  ...(id.trim() !== '' && Number.isFinite(Number(id)) ? [{ $numberDouble: id }] : []),
];

/** The ids that `task/document` may stand for, as each store writes them. */
function taskIds(text: string): readonly string[] {
  const slash = text.indexOf('/');
  if (slash <= 0) return [text];
  const [task, id] = [text.slice(0, slash), text.slice(slash + 1)];
  const ofMongodb = readings(id).map((value) => JSON.stringify({ id: { task, id: value } }));
  return [text, JSON.stringify({ task, key: JSON.stringify([id]) }), ...ofMongodb];
}

const documentIds = (id: string): readonly string[] => [
  id,
  JSON.stringify([id]),
  ...readings(id).map((value) => JSON.stringify({ id: value })),
];

/** Finds a job by its id, or a task by its own id or by `task/document`; with a collection, one of its documents. */
export async function findWork(
  { mill, store }: Pick<Session, 'mill' | 'store'>,
  id: string,
  collection?: string,
): Promise<Work | undefined> {
  if (collection !== undefined) {
    const schedule = mill.documents({ collection, onDocument: () => undefined });
    const [document] = (await schedule.find({ id: documentIds(id) }, { limit: 1 })).items;
    return document && { kind: 'document', document };
  }
  const job = await mill.jobs.get(id);
  if (job !== undefined) return { kind: 'job', job };
  if (store.reactive === undefined) return undefined;
  const [task] = (await mill.tasks.find({ id: taskIds(id) }, { limit: 1 })).items;
  return task && { kind: 'task', task };
}

/** How a task is written on the command line. */
export const taskRef = ({ task, sourceDocId }: Pick<FoundTask, 'task' | 'sourceDocId'>): string =>
  `${task}/${idText(sourceDocId)}`;
