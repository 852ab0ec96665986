-- Results that travel with the news: COMMIT sends small ones to the process whose requests wait for them, which is spared
-- a call for each. The ledger has them as before, and whoever gets no message reads them there.
local MAX_ANSWER, MAX_ANSWERS = 16384, 262144  -- bytes of one result, and of all in a message: a subscriber may be slow

-- t: what settled() knows of a task that has ended. Only what this script has of it is sent: nothing is read again.
local function enclose(box, id, t)
  local bytes = 0
  for _, value in ipairs(t.outcomes) do bytes = bytes + #value end
  if t.ended < t.total or bytes > MAX_ANSWER or box.bytes + bytes > MAX_ANSWERS then return end
  local function put(part) box.parts[#box.parts + 1] = part end
  put(table.concat({#t.outcomes, t.ttl, t.state, t.lane, int(t.total), int(t.ok), int(t.failed), int(t.tokens),
    int(t.created), t.started or '-', int(NOW), t.deadline or '-'}, ' '))
  put(id)
  put(QUEUE)
  put(t.owner)
  put(t.options or '')
  put(t.trace or '')
  for _, value in ipairs(t.outcomes) do put(value) end
  box.bytes = box.bytes + bytes
  box.ids[id] = true
end
-- tasks: id -> what settle() returned. An end that was told so to somebody is not announced again.
local function tell_answers(tasks)
  local boxes, told = {}, {}
  for id, t in pairs(tasks) do
    if t.answer and t.state then
      boxes[t.answer] = boxes[t.answer] or {bytes = 0, ids = {}, parts = {}}
      enclose(boxes[t.answer], id, t)
    end
  end
  for process, box in pairs(boxes) do
    if #box.parts > 0 and call('PUBLISH', R .. ':answers:' .. process, packed(box.parts)) > 0 then
      for id in pairs(box.ids) do told[id] = true end
    end
  end
  local others = {}
  for _, id in ipairs(ended_ids) do
    if not told[id] then others[#others + 1] = id end
  end
  ended_ids = others
end
