import { sendEmail } from '@/lib/jobs';
import { mill } from '@/lib/mill';

interface Context {
  readonly params: Promise<{ id: string }>;
}

export async function GET(_request: Request, { params }: Context): Promise<Response> {
  const job = await mill.jobs.get((await params).id);
  if (job?.name !== sendEmail.name) return Response.json({ error: 'No such email.' }, { status: 404 });
  return Response.json({ status: job.status, result: job.result });
}
