import {
  CalendarClock,
  Gauge,
  type IconNode,
  Keyboard,
  ListTodo,
  Monitor,
  Moon,
  ScrollText,
  SlidersHorizontal,
  Sun,
  TriangleAlert,
} from 'lucide';
import type { ComponentChildren, VNode } from 'preact';
import { useRef } from 'preact/hooks';
import type { Session } from '../../../src/dashboard/contract.js';
import { useCell } from '../cell.js';
import type { Place } from '../router.js';
import { may } from '../session.js';
import { nextTheme, theme } from '../theme.js';
import { Icon } from './icon.js';
import { Link } from './link.js';
import { Logo } from './logo.js';

const PAGES: readonly (readonly [path: string, label: string, icon: IconNode])[] = [
  ['', 'Overview', Gauge],
  ['work', 'Work', ListTodo],
  ['schedules', 'Schedules', CalendarClock],
  ['limits', 'Limits', SlidersHorizontal],
  ['failures', 'Failures', TriangleAlert],
  ['audit', 'Audit log', ScrollText],
];

const THEMES = { system: ['System', Monitor], light: ['Light', Sun], dark: ['Dark', Moon] } as const;

interface ShellProps {
  readonly session: Session | undefined;
  readonly place: Place;
  readonly showKeys: () => void;
  readonly children: ComponentChildren;
}

export function Shell({ session, place, showKeys, children }: ShellProps): VNode {
  const main = useRef<HTMLElement>(null);
  const page = place.path.split('/')[0] ?? '';
  return (
    <div class="shell">
      <button type="button" class="skip" onClick={() => main.current?.focus()}>
        Skip to the content
      </button>
      <header class="side">
        <Link to="" class="brand">
          <Logo />
          Tidemill
        </Link>
        <nav aria-label="Pages">
          {PAGES.map(([path, label, icon]) => (
            <Link key={path} to={path} current={path === page}>
              <Icon of={icon} />
              {label}
            </Link>
          ))}
        </nav>
        <div class="side-foot">
          <ThemeButton />
          <button type="button" class="ghost" onClick={showKeys}>
            <Icon of={Keyboard} />
            <span>
              Keys <kbd>?</kbd>
            </span>
          </button>
          <p class="side-note">{session && `${session.store} · ${session.version}${rightsNote(session)}`}</p>
        </div>
      </header>
      <main ref={main} tabIndex={-1} id="main">
        {children}
      </main>
    </div>
  );
}

function ThemeButton(): VNode {
  const chosen = useCell(theme);
  const [label, icon] = THEMES[chosen];
  return (
    <button type="button" class="ghost" title="Change the colours" onClick={nextTheme}>
      <Icon of={icon} />
      <span>
        <span class="hidden">Colours: </span>
        {label}
      </span>
    </button>
  );
}

function rightsNote(session: Session): string {
  return may(session, 'act') ? '' : ' · read only';
}
