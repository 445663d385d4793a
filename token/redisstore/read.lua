-- The state of the record at KEYS[1] (rec), and its stated end (ends; nil in a record that was
-- never claimed or used). A record past its stated end counts as none: rec is false then.
-- The state of one in another version, or too short for one, is 0, which no caller knows.

local state, ends
if rec then
  local version, bits = byte(rec, 1, 2)
  if #rec < 16 or version ~= 1 then
    state = 0
  else
    state = bits % 8
    if #rec >= 22 then
      local a, b, c, d, e, f = byte(rec, 17, 22)
      ends = ((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f
      if now > ends then
        rec, state, ends = false, nil, nil
      end
    end
  end
end
