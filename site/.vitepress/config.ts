import { defineConfig } from 'vitepress';
import { navigation } from '../navigation.mjs';

const page = (text: string, link: string): { text: string; link: string } => ({ text, link });

export default defineConfig({
  title: 'Tidemill',
  description: 'Background work in the database you already use.',
  lang: 'en',
  srcDir: './pages',
  cleanUrls: true,
  lastUpdated: false,
  // A dead link fails the build; that is how links are checked.
  ignoreDeadLinks: false,
  head: [
    ['link', { rel: 'icon', type: 'image/svg+xml', href: '/icon.svg' }],
    ['meta', { name: 'theme-color', content: '#0f766e' }],
  ],
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
    logo: { src: '/icon.svg', alt: '' },
    search: { provider: 'local' },
    outline: [2, 3],
    nav: [
      page('Quick start', '/quick-start-embedded'),
      page('Guides', '/guides/send-email-after-sign-up'),
      page('Reference', '/reference/options'),
      page('API', '/api/'),
      page('Examples', '/examples/'),
      page('Changelog', '/changelog'),
    ],
    sidebar: navigation().map(({ text, items }) => ({ text, items, collapsed: false })),
  },
});
