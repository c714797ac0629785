/* Made by script/known-answers: the answers (answers.h) of this release. */
/* clang-format off */
static const struct known_class {
    const char *bits;
    int count;
    uint64_t hash[112];
} known[] = {
    {"chain", 112, {
        0x44215dd210f3f5de, /* matmul, f32 */
        0x763b8909f825b982, /* matmul, bf16 */
        0x2fa663a32822c7c7, /* matmul, f16 */
        0x28a9c30d22d45ea8, /* matmul, f64 */
        0x6e6845b7dc6160dd, /* matmul, batched, f32 */
        0x27b514586b53bd7e, /* matmul, batched, bf16 */
        0x3384226a6eafbe60, /* matmul, batched, f16 */
        0x06073189cfe99bf3, /* matmul, batched, f64 */
        0x40ad01708f58041d, /* linear, f32 */
        0x8f792fa8d7e1b275, /* linear, bf16 */
        0x442ec059b6b7db13, /* linear, f16 */
        0xd8ad6fd1fc1281a1, /* linear, f64 */
        0x9e072976f9e3f298, /* conv2d 3x3, f32 */
        0x527cc23b66a5ecd1, /* conv2d 3x3, bf16 */
        0xe4d88910a0436b3e, /* conv2d 3x3, f16 */
        0x9ad259cd1f814f27, /* conv2d 3x3, f64 */
        0x389e75fffff622b0, /* conv2d 1x1, f32 */
        0x69f413e589234237, /* conv2d 1x1, bf16 */
        0x5e22db5770373834, /* conv2d 1x1, f16 */
        0xce089d95f0c87cbb, /* conv2d 1x1, f64 */
        0x1424c2e362c04918, /* conv2d 3x3, 3 channels, f32 */
        0xf84ec736818fe9ad, /* conv2d 3x3, 3 channels, bf16 */
        0x7b882880bf44b10a, /* conv2d 3x3, 3 channels, f16 */
        0x299f753503165a2c, /* conv2d 3x3, 3 channels, f64 */
        0xf6b34f5801bda15b, /* conv2d 3x3, stride 2, f32 */
        0xa3636849cfcd1dcb, /* conv2d 3x3, stride 2, bf16 */
        0x6cb13537fd835a65, /* conv2d 3x3, stride 2, f16 */
        0xb0d380d6c9a1f2cb, /* conv2d 3x3, stride 2, f64 */
        0x8ec55217a4d6ae87, /* conv2d 3x3, 4 groups, f32 */
        0x9573530330c68377, /* conv2d 3x3, 4 groups, bf16 */
        0x85e54126d7c279e6, /* conv2d 3x3, 4 groups, f16 */
        0x8329e8605e1043ab, /* conv2d 3x3, 4 groups, f64 */
        0x827598853635bdfc, /* conv2d 3x3, depthwise, f32 */
        0x036481c17514cb4a, /* conv2d 3x3, depthwise, bf16 */
        0xbec915f10a7366de, /* conv2d 3x3, depthwise, f16 */
        0xf0266da92cc072ae, /* conv2d 3x3, depthwise, f64 */
        0xff9e93619a8c28d3, /* conv_transpose2d 2x2, f32 */
        0x828507010ec3922e, /* conv_transpose2d 2x2, bf16 */
        0xb272140f5adc968f, /* conv_transpose2d 2x2, f16 */
        0x5c54ceb771cb0010, /* conv_transpose2d 2x2, f64 */
        0x0fd8d851f92e0c68, /* lstm, f32 */
        0x0e0eb86735f085c2, /* lstm, bf16 */
        0x7e6286762f8db661, /* lstm, f16 */
        0x03b8ed6870997279, /* lstm, f64 */
        0xba80ffbc1aca16a0, /* gru, f32 */
        0x5f18cd83bbc01554, /* gru, bf16 */
        0x14497b71480affeb, /* gru, f16 */
        0xc4e24d3cbd1243a6, /* gru, f64 */
        0x0009d2e7fff890ee, /* attention, f32 */
        0x191431cd374c5b89, /* attention, bf16 */
        0x92a890943ea7a3e0, /* attention, f16 */
        0xa135c9ae758f8131, /* attention, f64 */
        0xdb6539c9945fa4e4, /* layer_norm, f32 */
        0xd3e2b885f0130d34, /* layer_norm, bf16 */
        0x30aa236496686df4, /* layer_norm, f16 */
        0xc9f85565555ab3ce, /* layer_norm, f64 */
        0x3c2b043f60e19ab0, /* rms_norm, f32 */
        0xca86720ea7249d2e, /* rms_norm, bf16 */
        0xd59af2e086100f0a, /* rms_norm, f16 */
        0x6296b914f0e14176, /* rms_norm, f64 */
        0x32c185ec6eaa0757, /* batch_norm, f32 */
        0x07b135a12c525ffb, /* batch_norm, bf16 */
        0x3fbec57b5422c2d0, /* batch_norm, f16 */
        0x47fa1ca73a212607, /* batch_norm, f64 */
        0x58b4bfabdce4cc61, /* group_norm, f32 */
        0xf887e9d063a6ee9a, /* group_norm, bf16 */
        0xa793bb2a158bc58c, /* group_norm, f16 */
        0xc96ba2da380e9610, /* group_norm, f64 */
        0xe114fa23344df665, /* softmax, f32 */
        0xfc73b46b92277e05, /* softmax, bf16 */
        0x4516ca9bda912601, /* softmax, f16 */
        0x3a47e1e54aebeb9d, /* softmax, f64 */
        0x89fcb06d60b42b1d, /* gelu, f32 */
        0x8c63901cb83e06b0, /* gelu, bf16 */
        0x000f4012d9f09cfd, /* gelu, f16 */
        0xa9c235691c913a44, /* gelu, f64 */
        0xe76df55f024ac624, /* add, f32 */
        0x9ab57bc1e8817ab9, /* add, bf16 */
        0x1bd574f7e3cf9372, /* add, f16 */
        0xbd6010bf0bcaab79, /* add, f64 */
        0xa38585c3c8d81104, /* mul, f32 */
        0x9863ca910c0072b7, /* mul, bf16 */
        0x9244f74300659d6d, /* mul, f16 */
        0x97cc648510a04c74, /* mul, f64 */
        0x645186579bacda09, /* swiglu, f32 */
        0xa1589c040b46e726, /* swiglu, bf16 */
        0x1b3f889e818fdc5b, /* swiglu, f16 */
        0x8724043c69bf5718, /* swiglu, f64 */
        0x361f53dc9519acc2, /* max_pool2d, f32 */
        0x1cff0673c51b1d6a, /* max_pool2d, bf16 */
        0xbca41327985a7e48, /* max_pool2d, f16 */
        0x0597f9eca6b3b6ca, /* max_pool2d, f64 */
        0x70e5ac9cae1155b9, /* adaptive_avg_pool2d, f32 */
        0x2c80efab394f9cdd, /* adaptive_avg_pool2d, bf16 */
        0x14b6b079592b9af9, /* adaptive_avg_pool2d, f16 */
        0xcaf57763d21b3e6a, /* adaptive_avg_pool2d, f64 */
        0x06f6efe26ba67a88, /* dropout, f32 */
        0x3e4826e2421bc482, /* dropout, bf16 */
        0x91d2739c20636e71, /* dropout, f16 */
        0x20446138e3e4e2ed, /* dropout, f64 */
        0xddd617eb6f7da1fd, /* embedding, f32 */
        0xdaae11211e0ed6ba, /* embedding, bf16 */
        0xb7120f0d83779127, /* embedding, f16 */
        0x296596d4ddaf3555, /* embedding, f64 */
        0x2d2312a5de4413e7, /* sum_dim, f32 */
        0x538e834b640bb89d, /* sum_dim, bf16 */
        0x8316183b1d148036, /* sum_dim, f16 */
        0x53067a202475ebeb, /* sum_dim, f64 */
        0xed4fbcbdee6860fc, /* cross_entropy, f32 */
        0x4018303864abcf50, /* cross_entropy, bf16 */
        0x02a763b1fdf35665, /* cross_entropy, f16 */
        0x1ebbabfef33ac75b, /* cross_entropy, f64 */
    }},
    {"amx", 112, {
        0x44215dd210f3f5de, /* matmul, f32 */
        0x763b8909f825b982, /* matmul, bf16 */
        0x2fa663a32822c7c7, /* matmul, f16 */
        0x28a9c30d22d45ea8, /* matmul, f64 */
        0x6e6845b7dc6160dd, /* matmul, batched, f32 */
        0x27b514586b53bd7e, /* matmul, batched, bf16 */
        0x3384226a6eafbe60, /* matmul, batched, f16 */
        0x06073189cfe99bf3, /* matmul, batched, f64 */
        0x40ad01708f58041d, /* linear, f32 */
        0xc281ac0288ba020e, /* linear, bf16 */
        0x442ec059b6b7db13, /* linear, f16 */
        0xd8ad6fd1fc1281a1, /* linear, f64 */
        0x9e072976f9e3f298, /* conv2d 3x3, f32 */
        0x8938ee74bc1c7b9a, /* conv2d 3x3, bf16 */
        0xe4d88910a0436b3e, /* conv2d 3x3, f16 */
        0x9ad259cd1f814f27, /* conv2d 3x3, f64 */
        0x389e75fffff622b0, /* conv2d 1x1, f32 */
        0x69f413e589234237, /* conv2d 1x1, bf16 */
        0x5e22db5770373834, /* conv2d 1x1, f16 */
        0xce089d95f0c87cbb, /* conv2d 1x1, f64 */
        0x1424c2e362c04918, /* conv2d 3x3, 3 channels, f32 */
        0xf84ec736818fe9ad, /* conv2d 3x3, 3 channels, bf16 */
        0x7b882880bf44b10a, /* conv2d 3x3, 3 channels, f16 */
        0x299f753503165a2c, /* conv2d 3x3, 3 channels, f64 */
        0xf6b34f5801bda15b, /* conv2d 3x3, stride 2, f32 */
        0xa3636849cfcd1dcb, /* conv2d 3x3, stride 2, bf16 */
        0x6cb13537fd835a65, /* conv2d 3x3, stride 2, f16 */
        0xb0d380d6c9a1f2cb, /* conv2d 3x3, stride 2, f64 */
        0x8ec55217a4d6ae87, /* conv2d 3x3, 4 groups, f32 */
        0x9573530330c68377, /* conv2d 3x3, 4 groups, bf16 */
        0x85e54126d7c279e6, /* conv2d 3x3, 4 groups, f16 */
        0x8329e8605e1043ab, /* conv2d 3x3, 4 groups, f64 */
        0x827598853635bdfc, /* conv2d 3x3, depthwise, f32 */
        0x036481c17514cb4a, /* conv2d 3x3, depthwise, bf16 */
        0xbec915f10a7366de, /* conv2d 3x3, depthwise, f16 */
        0xf0266da92cc072ae, /* conv2d 3x3, depthwise, f64 */
        0xff9e93619a8c28d3, /* conv_transpose2d 2x2, f32 */
        0x828507010ec3922e, /* conv_transpose2d 2x2, bf16 */
        0xb272140f5adc968f, /* conv_transpose2d 2x2, f16 */
        0x5c54ceb771cb0010, /* conv_transpose2d 2x2, f64 */
        0x0fd8d851f92e0c68, /* lstm, f32 */
        0x0e0eb86735f085c2, /* lstm, bf16 */
        0x7e6286762f8db661, /* lstm, f16 */
        0x03b8ed6870997279, /* lstm, f64 */
        0xba80ffbc1aca16a0, /* gru, f32 */
        0x5f18cd83bbc01554, /* gru, bf16 */
        0x14497b71480affeb, /* gru, f16 */
        0xc4e24d3cbd1243a6, /* gru, f64 */
        0x0009d2e7fff890ee, /* attention, f32 */
        0x191431cd374c5b89, /* attention, bf16 */
        0x92a890943ea7a3e0, /* attention, f16 */
        0xa135c9ae758f8131, /* attention, f64 */
        0xdb6539c9945fa4e4, /* layer_norm, f32 */
        0xd3e2b885f0130d34, /* layer_norm, bf16 */
        0x30aa236496686df4, /* layer_norm, f16 */
        0xc9f85565555ab3ce, /* layer_norm, f64 */
        0x3c2b043f60e19ab0, /* rms_norm, f32 */
        0xca86720ea7249d2e, /* rms_norm, bf16 */
        0xd59af2e086100f0a, /* rms_norm, f16 */
        0x6296b914f0e14176, /* rms_norm, f64 */
        0x32c185ec6eaa0757, /* batch_norm, f32 */
        0x07b135a12c525ffb, /* batch_norm, bf16 */
        0x3fbec57b5422c2d0, /* batch_norm, f16 */
        0x47fa1ca73a212607, /* batch_norm, f64 */
        0x58b4bfabdce4cc61, /* group_norm, f32 */
        0xf887e9d063a6ee9a, /* group_norm, bf16 */
        0xa793bb2a158bc58c, /* group_norm, f16 */
        0xc96ba2da380e9610, /* group_norm, f64 */
        0xe114fa23344df665, /* softmax, f32 */
        0xfc73b46b92277e05, /* softmax, bf16 */
        0x4516ca9bda912601, /* softmax, f16 */
        0x3a47e1e54aebeb9d, /* softmax, f64 */
        0x89fcb06d60b42b1d, /* gelu, f32 */
        0x8c63901cb83e06b0, /* gelu, bf16 */
        0x000f4012d9f09cfd, /* gelu, f16 */
        0xa9c235691c913a44, /* gelu, f64 */
        0xe76df55f024ac624, /* add, f32 */
        0x9ab57bc1e8817ab9, /* add, bf16 */
        0x1bd574f7e3cf9372, /* add, f16 */
        0xbd6010bf0bcaab79, /* add, f64 */
        0xa38585c3c8d81104, /* mul, f32 */
        0x9863ca910c0072b7, /* mul, bf16 */
        0x9244f74300659d6d, /* mul, f16 */
        0x97cc648510a04c74, /* mul, f64 */
        0x645186579bacda09, /* swiglu, f32 */
        0xa1589c040b46e726, /* swiglu, bf16 */
        0x1b3f889e818fdc5b, /* swiglu, f16 */
        0x8724043c69bf5718, /* swiglu, f64 */
        0x361f53dc9519acc2, /* max_pool2d, f32 */
        0x1cff0673c51b1d6a, /* max_pool2d, bf16 */
        0xbca41327985a7e48, /* max_pool2d, f16 */
        0x0597f9eca6b3b6ca, /* max_pool2d, f64 */
        0x70e5ac9cae1155b9, /* adaptive_avg_pool2d, f32 */
        0x2c80efab394f9cdd, /* adaptive_avg_pool2d, bf16 */
        0x14b6b079592b9af9, /* adaptive_avg_pool2d, f16 */
        0xcaf57763d21b3e6a, /* adaptive_avg_pool2d, f64 */
        0x06f6efe26ba67a88, /* dropout, f32 */
        0x3e4826e2421bc482, /* dropout, bf16 */
        0x91d2739c20636e71, /* dropout, f16 */
        0x20446138e3e4e2ed, /* dropout, f64 */
        0xddd617eb6f7da1fd, /* embedding, f32 */
        0xdaae11211e0ed6ba, /* embedding, bf16 */
        0xb7120f0d83779127, /* embedding, f16 */
        0x296596d4ddaf3555, /* embedding, f64 */
        0x2d2312a5de4413e7, /* sum_dim, f32 */
        0x538e834b640bb89d, /* sum_dim, bf16 */
        0x8316183b1d148036, /* sum_dim, f16 */
        0x53067a202475ebeb, /* sum_dim, f64 */
        0xed4fbcbdee6860fc, /* cross_entropy, f32 */
        0x4018303864abcf50, /* cross_entropy, bf16 */
        0x02a763b1fdf35665, /* cross_entropy, f16 */
        0x1ebbabfef33ac75b, /* cross_entropy, f64 */
    }},
};
