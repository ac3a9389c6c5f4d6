{
  "targets": [
    {
      "target_name": "infera_native",
      "sources": [
        "<!@(node -p \"require('fs').readdirSync('core').filter((f) => f.endsWith('.cc')).map((f) => 'core/' + f).join(' ')\")",
        "<!@(node -p \"require('fs').readdirSync('binding').filter((f) => f.endsWith('.cc')).map((f) => 'binding/' + f).join(' ')\")",
      ],
      "include_dirs": [
        "core",
        "<!(node -p \"require('node-addon-api').include_dir\")",
        "<!(node -p \"process.env.INFERA_XXHASH_INCLUDE || '.'\")",
      ],
      "defines": [
        "NAPI_VERSION=9",
        "NODE_ADDON_API_DISABLE_CPP_EXCEPTIONS",
        "NODE_ADDON_API_DISABLE_DEPRECATED",
        "NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS",
      ],
      "cflags": ["-O2", "-fvisibility=hidden", "-Wall", "-Wextra"],
      # The core turns the one allocation failure that the standard library can throw into a status.
      "cflags_cc!": ["-fno-exceptions", "-fno-rtti", "-std=gnu++17", "-std=gnu++1y", "-std=gnu++14"],
      "cflags_cc": ["-std=c++20"],
      "conditions": [
        ["OS == 'linux'", { "ldflags": ["-Wl,--exclude-libs,ALL", "-Wl,--gc-sections", "-pthread"] }],
        ["OS == 'mac'", {
          "xcode_settings": {
            "CLANG_CXX_LANGUAGE_STANDARD": "c++20",
            "GCC_ENABLE_CPP_EXCEPTIONS": "YES",
            "GCC_SYMBOLS_PRIVATE_EXTERN": "YES",
            "MACOSX_DEPLOYMENT_TARGET": "11.0",
          },
        }],
      ],
    },
  ],
}
