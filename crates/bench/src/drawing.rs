//! A frame of the thesis's drawing loop: a background image, a rocket ship, a fuel bar, drawn
//! into an application's window of 480 x 320 pixels of 16 bits.

const WIDTH: usize = 480;
const HEIGHT: usize = 320;
/// Bytes of a pixel, RGB565.
const PIXEL_BYTES: usize = 2;
/// Bytes of a window or an image of its size: 300 KiB.
pub const WINDOW_BYTES: usize = WIDTH * HEIGHT * PIXEL_BYTES;

const SHIP: usize = 48;
const FUEL_ROWS: usize = 10;
const FUEL: [u8; PIXEL_BYTES] = 0x07e0_u16.to_ne_bytes();
/// A pixel of the ship that shows what is behind it.
const CLEAR: [u8; PIXEL_BYTES] = 0xf81f_u16.to_ne_bytes();

pub fn draw(background: &[u8], window: &mut [u8], ship: &[u8], frame: usize) {
    window[..WINDOW_BYTES].copy_from_slice(&background[..WINDOW_BYTES]);
    let (left, top) = (frame % (WIDTH - SHIP), frame / 2 % (HEIGHT - SHIP));
    for (pixels, row) in ship.chunks_exact(SHIP * PIXEL_BYTES).zip(top..) {
        let target = &mut window[(row * WIDTH + left) * PIXEL_BYTES..][..pixels.len()];
        let pairs = target.chunks_exact_mut(PIXEL_BYTES).zip(pixels.chunks_exact(PIXEL_BYTES));
        for (target, pixel) in pairs.filter(|(_, pixel)| *pixel != CLEAR) {
            target.copy_from_slice(pixel);
        }
    }
    for row in 4..4 + FUEL_ROWS {
        let bar = &mut window[row * WIDTH * PIXEL_BYTES..][..(WIDTH - frame % WIDTH) * PIXEL_BYTES];
        bar.chunks_exact_mut(PIXEL_BYTES).for_each(|pixel| pixel.copy_from_slice(&FUEL));
    }
}

/// The rocket ship, with some of the background to be seen through it.
pub fn ship() -> Vec<u8> {
    let pixel = |index: usize| if index.is_multiple_of(3) { CLEAR } else { [index as u8, 0x84] };
    (0..SHIP * SHIP).flat_map(pixel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_scene_is_drawn() {
        let background: Vec<u8> = (0..WINDOW_BYTES).map(|index| (index / 7) as u8).collect();
        let mut window = vec![0; WINDOW_BYTES];
        draw(&background, &mut window, &ship(), 40);
        let pixel = |row: usize, column: usize| (row * WIDTH + column) * PIXEL_BYTES;
        let at = |of: &[u8], place: usize| [of[place], of[place + 1]];
        assert_eq!(at(&window, pixel(5, 0)), FUEL);
        let last = pixel(HEIGHT - 1, WIDTH - 1);
        assert_eq!(at(&window, last), at(&background, last), "behind everything");
        assert_eq!(at(&window, pixel(20, 41)), [1, 0x84], "the ship");
        assert_eq!(at(&window, pixel(20, 43)), at(&background, pixel(20, 43)), "through the ship");
    }
}
