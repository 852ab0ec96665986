-- Ends tasks that are not wanted, or says how long one is.   own: mode, then
--   'cancel', ids; 'forget', ids: every trace of them goes too   reply: for each its state before, '' unknown
--   'want', id for_ms, 1 its caller has gone: moves the latest moment at which anybody wants it   reply: 1 it is open
-- uses: end_task
local mode, first, for_ms, gone = unpack(ARGV, OWN)
local function want()
  local x = task(first)
  local t = x and x.t
  if not t or not OPEN[t[STATE]] or t[DEADLINE] == 0 then return 0 end
  if gone == '1' and t[ANSWER] == '' then return 1 end  -- callers of several processes wait for it
  local at = NOW + for_ms
  tally(t, -1)
  t[DEADLINE] = gone == '1' and math.min(t[DEADLINE], at) or math.max(t[DEADLINE], at)
  t[UNWANTED] = gone == '1' and 1 or 0
  tally(t, 1)
  save_task(x)
  call('ZADD', DUE, t[DEADLINE], 'task:' .. x.id)
  return 1
end
local function cancel()
  local states = {}
  for i = OWN + 1, #ARGV do
    local x = task(ARGV[i])
    states[#states + 1] = x and x.t[STATE] or ''
    if x and OPEN[x.t[STATE]] then end_task(x, 'cancelled') end
    if x and mode == 'forget' then forget(x, ARGV[i]) end
  end
  announce()
  return states
end
allowed_when_full()
local reply = mode == 'want' and want() or mode ~= 'want' and cancel()
save_sums()
return reply
