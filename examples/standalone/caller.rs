// python make.py folder; rustc caller.rs -L folder -C link-arg=-Wl,-rpath,folder -o caller; ./caller folder/weights
use std::ffi::{c_char, c_int, c_void, CStr, CString};

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[link(name = "program")]
extern "C" {
    fn pliant_create(weights: *const c_char, hooks: *const c_void, made: *mut *mut c_void) -> c_int;
    fn pliant_run(program: *mut c_void, inputs: *const Tensor, count: c_int, results: *mut Tensor) -> c_int;
    fn pliant_release(program: *mut c_void, results: *mut Tensor, count: c_int);
    fn pliant_destroy(program: *mut c_void);
    fn pliant_error() -> *const c_char;
}

fn check(code: c_int) {
    if code != 0 {
        panic!("{}", unsafe { CStr::from_ptr(pliant_error()) }.to_string_lossy());
    }
}

fn main() {
    let weights = CString::new(std::env::args().nth(1).expect("the weights")).unwrap();
    let mut elements: Vec<f32> = (0..16).map(|i| i as f32 * 0.1).collect();
    let mut sizes = [2i64, 8];
    let x = Tensor {
        data: elements.as_mut_ptr() as *mut c_void, device_type: 1, device_id: 0, ndim: 2, code: 2, bits: 32, lanes: 1,
        shape: sizes.as_mut_ptr(), strides: std::ptr::null_mut(), byte_offset: 0,
    };
    unsafe {
        let mut program = std::ptr::null_mut();
        check(pliant_create(weights.as_ptr(), std::ptr::null(), &mut program));
        let mut result: Tensor = std::mem::zeroed();
        check(pliant_run(program, &x, 1, &mut result));
        let (rows, step) = (*result.shape as usize, *result.strides as usize);
        let found = std::slice::from_raw_parts(result.data as *const f32, rows * step);
        for row in 0..rows {
            println!("{:?}", &found[row * step..row * step + 4]);
        }
        pliant_release(program, &mut result, 1);
        pliant_destroy(program);
    }
}
