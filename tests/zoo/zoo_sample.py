"""A few classes of every family for the suite; the whole zoo is `zooport zoo --check forward`."""

SAMPLE: dict[str, tuple[str, ...]] = {
    "text": ("AlbertForMaskedLM", "Gemma3ForCausalLM", "DeepseekV3Model", "BambaModel", "LongformerForQuestionAnswering", "BartModel"),
    "vision": ("ConvNextForImageClassification", "DPTForDepthEstimation", "RTDetrForObjectDetection", "SamModel", "Swinv2Model"),
    "audio": ("HubertForCTC", "Speech2TextModel", "EncodecModel", "ASTForAudioClassification", "DacModel"),
    "video": (
        "VideoMAEForPreTraining",
        "VJEPA2Model",
        "VivitForVideoClassification",
        "VJEPA2ForVideoClassification",
        "VideoPrismVisionModel",
    ),
    "multimodal": ("Qwen2VLForConditionalGeneration", "BlipForQuestionAnswering", "LayoutLMModel", "GotOcr2Model", "MllamaModel"),
    "time-series": ("PatchTSTForPrediction", "AutoformerModel", "InformerModel", "TimesFmModel", "DecisionTransformerModel"),
    "other": ("MuseGlimmerAssistantModel",),
}
DECODES = (
    "MistralForCausalLM",
    "BartForConditionalGeneration",
    "Qwen2VLForConditionalGeneration",
    "Mamba2ForCausalLM",
    "RobertaForCausalLM",
)
