-- The record at KEYS[1], for scripts that may add one: where there is none, the first write
-- is theirs, and is refused while Redis is full. Else as getex.lua.

local rec = call('GET', KEYS[1])
if rec then
  rec = call('GETEX', KEYS[1])
end
