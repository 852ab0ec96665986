// What the browser keeps for this tab. A browser that keeps nothing (by a setting of its user) is no reason to fail.
export const ofTab = {
  get: (key) => {
    try {
      return sessionStorage.getItem(key);
    } catch {
      return null;
    }
  },
  // An empty value is removed.
  set: (key, value) => {
    try {
      if (value) sessionStorage.setItem(key, value);
      else sessionStorage.removeItem(key);
    } catch {
      // it lives as long as the page
    }
  },
};
