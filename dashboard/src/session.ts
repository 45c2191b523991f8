import { createContext } from 'preact';
import { useContext } from 'preact/hooks';
import type { Right, Session } from '../../src/dashboard/contract.js';

export const SessionContext = createContext<Session | undefined>(undefined);

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (session === undefined) throw new Error('The page has no session.');
  return session;
}

export function may({ rights, readOnly }: Session, right: Right): boolean {
  return rights.includes(right) && !(readOnly && right === 'act');
}

export const KIND_WORDS = { jobs: 'Jobs', tasks: 'Reactive tasks', documents: 'Documents' } as const;
/** Singular and plural of each kind. */
export const KIND_NOUNS = {
  jobs: ['job', 'jobs'],
  tasks: ['task', 'tasks'],
  documents: ['document', 'documents'],
} as const;
