import { describe, expect, it } from 'vitest';
import { FailureDetector } from '../../src/engine/failure-detector.js';
import { virtualClock } from '../../src/testing/index.js';
import { aCluster } from '../engine/support.js';

const LEASE_MS = 30_000;
const silent = { life: 'silent', leftMs: -1 };

/** A detector of an instance that renews on time. */
function aDetector() {
  const clock = virtualClock(new Date('2026-01-01T00:00:00Z'));
  const detector = new FailureDetector(clock, LEASE_MS);
  detector.renewed();
  const renewFor = async (ms: number): Promise<void> => {
    for (let passed = 0; passed < ms; passed += LEASE_MS / 3) {
      await clock.advance(LEASE_MS / 3);
      detector.renewed();
    }
  };
  return { clock, detector, renewFor };
}

describe('a failure detector', () => {
  it('waits for the end of a lease that holds', () => {
    expect(aDetector().detector.waitMs({ life: 'alive', leftMs: 12_345 })).toBe(12_345);
  });

  it('gives a silent instance a whole lease after its own start', async () => {
    const { detector, renewFor } = aDetector();
    detector.observe(aCluster([silent]));
    expect(detector.waitMs(silent)).toBe(LEASE_MS);
    await renewFor(LEASE_MS);
    expect(detector.waitMs(silent)).toBe(0);
  });

  it('declares an instance dead within 1.5 s of the end of its lease, in normal operation', async () => {
    const { clock, detector, renewFor } = aDetector();
    await renewFor(LEASE_MS * 2);
    detector.observe(aCluster([silent]));
    expect(detector.waitMs(silent)).toBe(1_500);
    await clock.advance(1_500);
    detector.observe(aCluster([silent]));
    expect(detector.waitMs(silent)).toBe(0);
  });

  it('begins anew with an instance that renewed meanwhile', async () => {
    const { clock, detector, renewFor } = aDetector();
    await renewFor(LEASE_MS * 2);
    detector.observe(aCluster([silent]));
    await clock.advance(1_500);
    detector.observe(aCluster([{ life: 'silent', leftMs: 20_000 }]));
    detector.observe(aCluster([silent]));
    expect(detector.waitMs(silent)).toBe(1_500);
  });

  it('gives everybody a whole lease after a gap in its own renewals', async () => {
    const { clock, detector, renewFor } = aDetector();
    await renewFor(LEASE_MS * 2);
    detector.observe(aCluster([silent]));
    await clock.advance(LEASE_MS * 100);
    expect(detector.waitMs(silent)).toBe(LEASE_MS);
    detector.renewed();
    detector.observe(aCluster([silent]));
    expect(detector.waitMs(silent)).toBe(LEASE_MS);
    await renewFor(LEASE_MS);
    expect(detector.waitMs(silent)).toBe(0);
  });

  it('takes a server clock that was set forward for a gap, since it ends all leases at once', async () => {
    const { clock, renewFor } = aDetector();
    let jumpMs = 0;
    const server = { ...clock, now: () => clock.now() + jumpMs, monotonic: () => clock.monotonic() };
    const detector = new FailureDetector(server, LEASE_MS);
    detector.renewed();
    await renewFor(LEASE_MS / 3);
    detector.renewed();
    jumpMs = 3_600_000;
    detector.renewed();
    expect(detector.graceMs).toBe(LEASE_MS);
  });
});
