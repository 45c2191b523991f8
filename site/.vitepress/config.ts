import { defineConfig } from 'vitepress';

const page = (text: string, link: string): { text: string; link: string } => ({ text, link });

export default defineConfig({
  title: 'Tidemill',
  description: 'Background work in the database you already have.',
  srcDir: './pages',
  cleanUrls: true,
  lastUpdated: false,
  // A dead link fails the build; that is how links are checked.
  ignoreDeadLinks: false,
  markdown: {
    // Braces in prose and tables are text, not templates.
    config: (markdown) => {
      const text = markdown.renderer.rules.code_inline;
      markdown.renderer.rules.code_inline = (tokens, index, options, env, self) =>
        (text ?? self.renderToken.bind(self))(tokens, index, options, env, self).replace(
          '<code>',
          '<code v-pre>',
        );
    },
  },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    nav: [
      page('Guide', '/introduction'),
      page('API', '/api/'),
      page('Examples', '/examples/'),
      page('Benchmark', '/benchmark'),
      page('Changelog', '/changelog'),
    ],
    sidebar: [
      {
        text: 'Begin',
        items: [
          page('Introduction', '/introduction'),
          page('Quick start: embedded', '/quick-start-embedded'),
          page('Quick start: PostgreSQL', '/quick-start-postgres'),
          page('Quick start: MongoDB', '/quick-start-mongodb'),
          page('Choosing a store', '/stores'),
          page('Comparison', '/comparison'),
        ],
      },
      {
        text: 'Work',
        items: [
          page('Jobs', '/jobs'),
          page('Scheduling', '/scheduling'),
          page('Reactive tasks', '/reactive-tasks'),
          page('Reactive tasks on tables', '/reactive-tasks-postgres'),
          page('Document schedules', '/documents'),
          page('Locks', '/locks'),
          page('Testing', '/testing'),
        ],
      },
      {
        text: 'Operate',
        items: [
          page('Operations and check-list', '/operations'),
          page('Security', '/security'),
          page('Dashboard', '/dashboard'),
          page('Command line', '/cli'),
          page('Metrics', '/metrics'),
          page('Tracing', '/tracing'),
          page('PostgreSQL', '/postgres'),
          page('Embedded', '/embedded'),
          page('Sharding', '/sharding'),
          page('Errors', '/errors'),
          page('Reference: options', '/reference/options'),
          page('Reference: events', '/reference/events'),
          page('Reference: commands', '/reference/command-line'),
        ],
      },
      {
        text: 'Move here',
        items: [
          page('From Agenda', '/from-agenda'),
          page('From BullMQ', '/from-bullmq'),
          page('From mongodb-cron', '/from-mongodb-cron'),
          page('From pg-boss', '/from-pg-boss'),
        ],
      },
      {
        text: 'Inside',
        items: [
          page('Architecture', '/architecture'),
          page('Write a store', '/write-a-store'),
          page('Glossary', '/glossary'),
          page('Decisions', '/adr/'),
          page('API reference', '/api/'),
        ],
      },
    ],
  },
});
