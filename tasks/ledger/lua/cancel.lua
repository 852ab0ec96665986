-- Ends a task.   own: id   reply: 'cancelled' | 'was_cancelled' | 'ended' | 'unknown'.   O(log tasks), never O(units)
-- uses: ending
allowed_when_full()
local state = state_of(arg(1))
if not state then return 'unknown' end
if end_task(arg(1), 'cancelled') then
  announce()
  return 'cancelled'
end
return state == 'cancelled' and 'was_cancelled' or 'ended'
