import { inBrowser, onContentUpdated, type Theme } from 'vitepress';
import DefaultTheme from 'vitepress/theme';
import { chooseTabs, rememberTab } from './tabs.js';
import './colours.css';
import './pages.css';
import './home.css';

const theme: Theme = {
  extends: DefaultTheme,
  // eslint-disable-next-line @typescript-eslint/no-deprecated -- its successor is a component, for which the site would need vue itself.
  setup() {
    onContentUpdated(chooseTabs);
    if (inBrowser) document.addEventListener('change', rememberTab);
  },
};

export default theme;
