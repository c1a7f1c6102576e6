@0xb1c6f0c4a7d35e29;

interface Echo {
  echo @0 (data :Data) -> (data :Data);
}
