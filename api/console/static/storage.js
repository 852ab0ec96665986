// What the browser keeps for this page. A browser that keeps nothing (by a setting of its user) is no reason to fail.
const area = (name) => ({
  get: (key) => {
    try {
      return window[name].getItem(key);
    } catch {
      return null;
    }
  },
  // An empty value is removed.
  set: (key, value) => {
    try {
      if (value) window[name].setItem(key, value);
      else window[name].removeItem(key);
    } catch {
      // it lives as long as the page
    }
  },
});

export const ofTab = area("sessionStorage");
export const ofBrowser = area("localStorage");
