"""Write OpenVINO's own form of a GGUF file beside it: `openvino_ir SOURCE`."""

import sys

import openvino_genai as genai  # type: ignore[import-not-found, unused-ignore]


def main() -> None:
    genai.LLMPipeline(sys.argv[1], "CPU", enable_save_ov_model=True)


if __name__ == "__main__":
    main()
